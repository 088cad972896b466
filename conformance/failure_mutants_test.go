package conformance

var failureMutants = []mutant{}

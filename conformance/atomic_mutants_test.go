package conformance

var atomicMutants = []mutant{}

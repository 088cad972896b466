package conformance

var closeMutants = []mutant{}

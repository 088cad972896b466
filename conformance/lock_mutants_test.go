package conformance

var lockMutants = []mutant{}

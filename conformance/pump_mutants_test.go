package conformance

var pumpMutants = []mutant{}

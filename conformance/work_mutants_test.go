package conformance

var workMutants = []mutant{}

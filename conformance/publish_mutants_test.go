package conformance

var publishMutants = []mutant{}

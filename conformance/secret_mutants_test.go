package conformance

var secretMutants = []mutant{}

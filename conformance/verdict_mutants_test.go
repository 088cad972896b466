package conformance

var verdictMutants = []mutant{}

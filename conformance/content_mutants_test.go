package conformance

var contentMutants = []mutant{}

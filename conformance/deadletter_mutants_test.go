package conformance

var deadLetterMutants = []mutant{}

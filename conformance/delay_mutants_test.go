package conformance

var delayMutants = []mutant{}

package conformance

var countMutants = []mutant{}

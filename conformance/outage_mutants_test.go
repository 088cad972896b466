package conformance

var outageMutants = []mutant{}

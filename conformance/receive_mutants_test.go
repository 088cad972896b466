package conformance

var receiveMutants = []mutant{}

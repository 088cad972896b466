package conformance

var settlementMutants = []mutant{}

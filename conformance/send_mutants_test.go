package conformance

var sendMutants = []mutant{}

package conformance

var retryMutants = []mutant{}

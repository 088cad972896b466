package conformance

var expiryMutants = []mutant{}

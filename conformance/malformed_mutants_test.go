package conformance

var malformedMutants = []mutant{}

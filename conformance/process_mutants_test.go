package conformance

var processMutants = []mutant{}

package conformance

var rateLimitMutants = []mutant{}

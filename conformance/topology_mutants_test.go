package conformance

var topologyMutants = []mutant{}

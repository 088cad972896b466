package conformance

var restartMutants = []mutant{}

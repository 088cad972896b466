package conformance

var scaleOutMutants = []mutant{}

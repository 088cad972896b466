package conformance

var closeCases = []testCase{}

package conformance

var secretCases = []testCase{}

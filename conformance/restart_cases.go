package conformance

var restartCases = []testCase{}

package conformance

var lockCases = []testCase{}

package conformance

var pumpCases = []testCase{}

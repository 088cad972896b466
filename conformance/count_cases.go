package conformance

var countCases = []testCase{}

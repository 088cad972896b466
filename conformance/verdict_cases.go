package conformance

var verdictCases = []testCase{}

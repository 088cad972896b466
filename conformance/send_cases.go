package conformance

var sendCases = []testCase{}

package conformance

var settlementCases = []testCase{}

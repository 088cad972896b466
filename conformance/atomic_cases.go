package conformance

var atomicCases = []testCase{}

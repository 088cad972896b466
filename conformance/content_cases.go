package conformance

var contentCases = []testCase{}

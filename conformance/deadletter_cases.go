package conformance

var deadLetterCases = []testCase{}

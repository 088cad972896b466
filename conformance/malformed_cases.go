package conformance

var malformedCases = []testCase{}

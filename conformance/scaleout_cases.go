package conformance

var scaleOutCases = []testCase{}

package conformance

var receiveCases = []testCase{}

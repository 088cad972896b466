package conformance

var rateLimitCases = []testCase{}

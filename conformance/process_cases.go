package conformance

var processCases = []testCase{}

package conformance

var outageCases = []testCase{}

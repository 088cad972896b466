package conformance

var retryCases = []testCase{}

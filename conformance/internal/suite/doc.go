// Package suite has the cases of the conformance suite, and everything that runs them and reports
// on them. Authors of adapters import package conformance, which documents the types and functions
// that both packages have, and calls the ones of this package.
//
// The files whose names begin with the number of a rule, such as c07_nothing_lost.go, have its
// cases. The others are about several rules:
//
//	suite.go, run.go      one run: which cases, in which modes, on which broker
//	case.go, case_t.go    a case, and the testing.TB that it gets
//	receiver.go, service.go, collector.go, ...
//	                      the toolbox of the cases
//	worker.go, child_process.go
//	                      endpoints in processes that a case kills
package suite

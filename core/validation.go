package core

import "fmt"

// validationErrors collects errors, so that they can be reported together.
type validationErrors struct{ errs []error }

func (errs *validationErrors) add(format string, args ...any) {
	errs.errs = append(errs.errs, fmt.Errorf(format, args...))
}

func (errs *validationErrors) addErr(err error) {
	if err != nil {
		errs.errs = append(errs.errs, err)
	}
}

package core

import (
	"fmt"
	"time"
)

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

// checkNotNegative checks a number or duration for which 0 is the default.
func checkNotNegative[T int | time.Duration](errs *validationErrors, field string, value T) {
	if value < 0 {
		errs.add("%s is %v; it cannot be negative (0 is the default)", field, value)
	}
}

// checkNotNegativeOrOff checks a number or duration that may be Off.
func checkNotNegativeOrOff[T int | time.Duration](errs *validationErrors, field string, value T) {
	if value < 0 && value != Off {
		errs.add("%s is %v; it cannot be negative (0 is the default, core.Off is none)", field, value)
	}
}

// orDefault fills in a field that is not set.
func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// offAsZero turns Off into 0, which stands for none in a resolved
// configuration.
func offAsZero[T int | float64 | time.Duration](value T) T {
	if value == Off {
		return 0
	}
	return value
}

// zeroAsOff is the reverse of offAsZero.
func zeroAsOff[T int | float64 | time.Duration](value T) T {
	if value == 0 {
		return Off
	}
	return value
}

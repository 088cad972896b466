package core

import (
	"maps"
	"slices"
	"strings"
)

// cloneBaseTypes copies Config.BaseTypes.
func cloneBaseTypes(types map[string][]string) map[string][]string {
	types = maps.Clone(types)
	for messageType, bases := range types {
		types[messageType] = slices.Clone(bases)
	}
	return types
}

// checkBaseTypes checks a Config.BaseTypes.
func checkBaseTypes(errs *validationErrors, types map[string][]string) {
	isName := func(name string) bool { return isMessageType(name) && strings.TrimSpace(name) == name }
	for _, messageType := range slices.Sorted(maps.Keys(types)) {
		bases := types[messageType]
		if !isName(messageType) {
			errs.add("BaseTypes: %q cannot be a message type; use UTF-8 text without ';', ',' and white space around it", messageType)
		}
		if len(bases) == 0 {
			errs.add("BaseTypes[%q] names no type; name some, or remove it", messageType)
		}
		for i, base := range bases {
			switch {
			case !isName(base):
				errs.add("BaseTypes[%q][%d]: %q cannot be a message type; use UTF-8 text without ';', ',' and white space around it", messageType, i, base)
			case base == messageType:
				errs.add("BaseTypes[%q][%d] is the type itself; remove it", messageType, i)
			case slices.Contains(bases[:i], base):
				errs.add("BaseTypes[%q] names %q twice; remove one", messageType, base)
			}
		}
	}
}

// typeHeader returns the value of the header with the types of a message.
func typeHeader(messageType string, bases []string) string {
	if len(bases) == 0 {
		return messageType
	}
	return messageType + ";" + strings.Join(bases, ";")
}

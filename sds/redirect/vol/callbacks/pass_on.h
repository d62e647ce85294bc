// Calls the connector below: through its class struct where that is known, as HDF5 would do
// without us, else through HDF5's H5VL functions. Those are public functions: where a call fails
// they print the error stack of a program that has not turned that off, and HDF5 prints it once
// more when the program's own call ends; and they cost parts of a small call's time.
#pragma once

#include "object.h"

namespace sds::vol
{

// direct: a callback (object, arguments...); nullptr: not to be called directly.
// through: its H5VL function (object, connector, arguments...).
template <typename Result, typename... Parameters, typename Through, typename... Arguments>
Result pass_on(const Object &self, Result (*direct)(void *, Parameters...), Through through,
               Arguments... arguments)
{
    return direct ? direct(self.under, arguments...)
                  : through(self.under, self.connector, arguments...);
}

// The same with a location between the object and the connector.
template <typename Result, typename... Parameters, typename Through, typename... Arguments>
Result pass_on_at(const Object &self, const H5VL_loc_params_t *location,
                  Result (*direct)(void *, const H5VL_loc_params_t *, Parameters...),
                  Through through, Arguments... arguments)
{
    return direct ? direct(self.under, location, arguments...)
                  : through(self.under, location, self.connector, arguments...);
}

} // namespace sds::vol

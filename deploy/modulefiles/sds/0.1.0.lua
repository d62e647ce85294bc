-- SDS for everybody on a machine with Lmod: `module load sds` puts `sds` on the path and switches
-- the connector on for the programs started after that.
--
-- Where SDS is installed (pip install --prefix, or a venv), and where the home of a project is.
-- Without SDS_PREFIX in the environment this is the site's place; without a home each user has a
-- home of his own.
local prefix = os.getenv("SDS_PREFIX") or "/opt/sds"
local home = os.getenv("SDS_SITE_HOME")

local plugin = "libh5sds_vol.so"
local connector = "sds under_vol=0;under_info={}"

help([[
SDS makes reading large HDF5 files fast without changing the programs that read them.

    sds doctor      what is loaded, and why something is not redirected
    sds advise      which layout would save time
    sds --help      everything else

SDS_DISABLE=1 turns the connector off for one program, `module unload sds` for all that follow.
]])
whatis("Name: SDS")
whatis("Version: 0.1.0")
whatis("Description: faster reads of HDF5 files through replicas in other layouts")

-- The package lies in the folder of the Python that it was installed for.
local package_directory
for minor = 11, 30 do
   local candidate = pathJoin(prefix, "lib", "python3." .. minor, "site-packages")
   if isFile(pathJoin(candidate, "sds", "redirect", "plugin", plugin)) then
      package_directory = candidate
   end
end

if mode() == "load" then
   -- HDF5 2.x ends every program with a crash where the variable names a connector that it cannot
   -- load: so nothing is exported unless the plugin is there.
   if not package_directory then
      LmodError("SDS is not installed in " .. prefix .. ": there is no lib/python3.*/site-packages/"
         .. "sds/redirect/plugin/" .. plugin .. "; install it there, or set SDS_PREFIX")
   end
   local named = os.getenv("HDF5_VOL_CONNECTOR")
   if named and named ~= "" and not named:match("^sds%f[%s\0]") then
      LmodError("HDF5_VOL_CONNECTOR already names another connector (" .. named .. "), and SDS does "
         .. "not stack on it; unset it to use SDS")
   end
end

if package_directory then
   prepend_path("PATH", pathJoin(prefix, "bin"))
   -- Setting the variable replaces HDF5's default directories (that of its sources, and those of the
   -- netCDF4 and h5py wheels), and the one that netCDF4 would set.
   for _, default in ipairs({"hdf5/lib/plugin", "lib/hdf5/plugin", "lib/plugin"}) do
      append_path("HDF5_PLUGIN_PATH", pathJoin("/usr/local", default))
   end
   local filters = pathJoin(package_directory, "netCDF4", "plugins")
   if isDir(filters) then
      prepend_path("HDF5_PLUGIN_PATH", filters)
   end
   prepend_path("HDF5_PLUGIN_PATH", pathJoin(package_directory, "sds", "redirect", "plugin"))
   setenv("HDF5_VOL_CONNECTOR", connector)
   if home then
      setenv("SDS_HOME", home)
   end
end

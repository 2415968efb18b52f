"""From a user's data to a project: fingerprint, picture sheet, commented config, its plain counterpart, commands.

``images`` reads the files, ``detection``, ``segmentation`` and ``classification`` look at each task's labels,
``rules`` decides, the modules ``*_config`` write the text, ``project`` the folder. docs/plan.md lists the rules.
"""
